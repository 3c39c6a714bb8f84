# step.bash -- what the scripts of the demo share.

# Show a command as a person would type it, then run it.
step() {
    local word
    {
        printf '\n$'
        for word; do
            case $word in *[\ \;]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
        done
        echo
    } >&3
    "$@"
}

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

exec 3>&1                            # commands are shown there when their output goes elsewhere
