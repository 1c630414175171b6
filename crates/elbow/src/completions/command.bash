# The COMMAND of `elbow run` and of some `elbow lock` is completed as on a line of its own; it begins after `--`, and with
# `elbow run` also at the first word that is no option.
_elbow_or_command() {
    local at bare=""
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
        "run "*) at=2 bare=yes ;;
        "lock exec" | "lock hold" | "lock mpi") at=3 ;;
        *) _elbow "$@"; return ;;
    esac
    for ((; at <= COMP_CWORD; at++)); do
        case "${COMP_WORDS[at]}" in
            --)
                if ((at < COMP_CWORD)); then _elbow_command $((at + 1)); return; fi
                ;;
            @VALUED@)
                [[ ${COMP_WORDS[at + 1]} == = ]] && ((at++))
                ((at++))
                ;;
            -*) ;;
            *)
                if [[ $bare ]]; then _elbow_command "$at"; return; fi
                ;;
        esac
    done
    _elbow "$@"
}

# The command whose first word has this index: by bash-completion where it is there, else its name, and then files
# (`-o default`).
_elbow_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    else
        COMPREPLY=()
    fi
}
