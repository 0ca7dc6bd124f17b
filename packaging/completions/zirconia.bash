# Completion of zpool, zfs and zirconia for bash, and for zsh behind `autoload -U bashcompinit && bashcompinit`.
# Verbs and options are those of the programs' own usage; names of pools, datasets and properties are asked of the daemon, if one runs: none is
# started for it.

# Usage of a program, or of one of its verbs.
_zirconia_usage() { command "$1" help "${@:2}" 2>/dev/null; }

# Verbs; with two words those below a verb.
_zirconia_verbs() {
    if [ "$1" = zirconia ] && [ $# = 2 ]; then
        _zirconia_usage "$1" "$2" | sed -n "s/^\t$2 \([a-z][a-z-]*\).*/\1/p"
    else
        _zirconia_usage "$1" | sed -n 's/^\t\([a-z][a-z-]*\).*/\1/p' | uniq
    fi
}

# Options: `[-abc]` are three, `[-o value]` one.
_zirconia_options() {
    local word letters
    for word in $(_zirconia_usage "$@" | grep -o -- '\[-[-A-Za-z]*'); do
        letters=${word#[}
        case $letters in
        --*) printf '%s\n' "$letters" ;;
        *) letters=${letters#-} && while [ -n "$letters" ]; do printf '%s\n' "-${letters:0:1}" && letters=${letters:1}; done ;;
        esac
    done
}

# Lines that a command prints, where a daemon runs.
_zirconia_ask() { command zirconia status >/dev/null 2>&1 && command "$@" 2>/dev/null; }
_zirconia_pools() { _zirconia_ask zpool list -H -o name; }
_zirconia_datasets() { _zirconia_ask zfs list -H -o name -t "$1"; }
# Properties, as the first pool or file system has them.
_zirconia_properties() {
    local pool
    pool=$(_zirconia_pools | head -n 1)
    [ -z "$pool" ] || _zirconia_ask "$1" get -H -o property all "$pool"
}

# Those that can be set: what is only told has '-' as its source.
_zirconia_settable() {
    local pool
    pool=$(_zirconia_pools | head -n 1)
    [ -z "$pool" ] || _zirconia_ask "$1" get -H -o property,source all "$pool" | sed -n '/\t-$/!s/\t.*//p'
}

# Last part of a list with commas: the rest stays as it is.
_zirconia_listed() {
    local before=
    [[ $current = *,* ]] && before=${current%,*},
    COMPREPLY=($(compgen -P "$before" -W "$1" -- "${current##*,}"))
}

# Names that a value follows.
_zirconia_assigned() {
    compopt -o nospace 2>/dev/null
    COMPREPLY=($(compgen -S = -W "$1" -- "$current"))
    return 0
}

# Behind `zfs`.
_zirconia_zfs() {
    case $verb/$previous in
    list/-o | list/-[sS]) _zirconia_listed "name $(_zirconia_properties zfs)" && return ;;
    get/-o) _zirconia_listed 'name property value received source all' && return ;;
    */-t) _zirconia_listed 'filesystem snapshot volume bookmark all' && return ;;
    get/get | inherit/inherit) _zirconia_listed "all $(_zirconia_properties zfs)" && return ;;
    set/set) _zirconia_assigned "$(_zirconia_settable zfs)" && return ;;
    */-o) _zirconia_assigned "$(_zirconia_properties zfs)" && return ;;
    esac
    local types=filesystem,volume
    case $verb in
    snapshot | snap) types=filesystem,volume ;;
    mount | unmount | umount | share | unshare) types=filesystem ;;
    rollback | hold | holds | release | send | clone | bookmark) types=snapshot ;;
    destroy | get | list | rename | set | inherit | diff) [[ $current = *@* ]] && types=filesystem,volume,snapshot ;;
    esac
    COMPREPLY=($(compgen -W "$(_zirconia_datasets $types)" -- "$current"))
    [ "$verb" != diff ] || COMPREPLY+=($(compgen -W "$(_zirconia_datasets snapshot)" -- "$current"))
}

# Behind `zpool`.
_zirconia_zpool() {
    case $verb/$previous in
    list/-o) _zirconia_listed "name $(_zirconia_properties zpool)" && return ;;
    get/-o) _zirconia_listed 'name property value source all' && return ;;
    get/get) _zirconia_listed "all $(_zirconia_properties zpool)" && return ;;
    set/set) _zirconia_assigned "$(_zirconia_settable zpool)" && return ;;
    */-o) _zirconia_assigned "$(_zirconia_properties zpool)" && return ;;
    wait/-t) _zirconia_listed 'discard free initialize replace remove resilver scrub trim raidz_expand' && return ;;
    */-[cdR]) COMPREPLY=($(compgen -f -- "$current")) && return ;;
    esac
    case $verb in
    create | labelclear) COMPREPLY=($(compgen -f -- "$current")) ;;
    import) ;;
    *)
        COMPREPLY=($(compgen -W "$(_zirconia_pools)" -- "$current"))
        # Devices, behind the pool.
        [[ $current != /* ]] || COMPREPLY+=($(compgen -f -- "$current"))
        ;;
    esac
}

# Behind `zirconia`.
_zirconia_zirconia() {
    if [ "$COMP_CWORD" = 2 ]; then
        COMPREPLY=($(compgen -W "$(_zirconia_verbs zirconia "$verb")" -- "$current"))
    fi
    [ -n "${COMPREPLY[*]}" ] || COMPREPLY=($(compgen -f -- "$current"))
}

_zirconia() {
    local IFS=$' \t\n' program=${1##*/} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$(_zirconia_verbs "$program")" -- "$current"))
    elif [[ $current = -* ]]; then
        COMPREPLY=($(compgen -W "$(_zirconia_options "$program" "$verb")" -- "$current"))
    else
        "_zirconia_$program"
    fi
}

complete -F _zirconia zpool zfs zirconia
