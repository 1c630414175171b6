# The COMMAND of `elbow run` and of some `elbow lock` is completed as on a line of its own; it begins after `--`, and with
# `elbow run` also at the first word that is no option.

# Prints the words of COMMAND before the cursor; fails where there is no COMMAND.
function __fish_elbow_command
    set -l words (commandline -opc)
    set -l bare no
    set -l at 4
    switch "$words[2] $words[3]"
        case 'run *'
            set bare yes
            set at 3
        case 'lock exec' 'lock hold' 'lock mpi'
        case '*'
            return 1
    end
    while test $at -le (count $words)
        switch $words[$at]
            case --
                test $at -lt (count $words)
                and string join \n -- $words[(math $at + 1)..-1]
                return 0
            case @VALUED@
                set at (math $at + 1)
            case '-*'
            case '*'
                if test $bare = yes
                    string join \n -- $words[$at..-1]
                    return 0
                end
        end
        set at (math $at + 1)
    end
    # The word at the cursor may be the first one.
    test $bare = yes -a $at -eq (math (count $words) + 1)
    and not string match -q -- '-*' (commandline -ct)
end

function __fish_elbow_complete_command
    complete -C (string join ' ' -- (string escape -- (__fish_elbow_command)) (commandline -ct))
end

complete -c elbow -n __fish_elbow_command -x -a '(__fish_elbow_complete_command)'
