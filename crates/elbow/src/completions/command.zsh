# The COMMAND of `elbow run` and of some `elbow lock` is completed as on a line of its own.
_elbow_command() {
    if [[ $words[1] == -- ]]; then
        shift words
        CURRENT=$((CURRENT - 1))
    fi
    _normal
}
