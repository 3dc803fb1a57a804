# SPDX-License-Identifier: MIT
# bash completion for uext4. Paths inside an image are asked of `uext4 ls`.

# Prints a word as typed without its quoting. It is not evaluated: a completion must run nothing.
_uext4_plain() {
    local word=$1
    word=${word//[\\\'\"]/}
    printf '%s' "${word/#\~\//$HOME/}"
}

# Sets COMPREPLY to the paths in image $1 that begin with $2; the other arguments are options.
_uext4_image_paths() {
    local image=$1 word folder name
    local -a found=()
    word=$(_uext4_plain "$2")
    shift 2
    folder=${word%"${word##*/}"}
    while IFS= read -r name; do
        name=$folder$name
        [[ $name == "$word"* ]] && found+=("$name")
    done < <(uext4 ls -q -A "$@" -- "$image" "${folder:-/}" 2>/dev/null | head -n 2000)
    for name in "${found[@]}"; do
        printf -v name '%q' "$name"
        COMPREPLY+=("$name")
    done
    if [[ ${#found[@]} -eq 1 ]] &&
        uext4 ls -q -d "$@" -- "$image" "${found[0]}/." >/dev/null 2>&1; then
        COMPREPLY[0]+=/
        compopt -o nospace 2>/dev/null
    fi
}

_uext4_options() {
    local change='--offset --partition --options --verbose --quiet --help'
    local common="$change --noload"
    case $1 in
    info) echo "$common --json --groups" ;;
    ls) echo "$common -l -R -a -A -d -i -h -1 -U -b" ;;
    stat) echo "$common --json --dereference" ;;
    cat | recover) echo "$common" ;;
    get) echo "$common --jobs --no-owner --no-xattrs --no-devices" ;;
    map) echo "$common --json --blocks --no-dereference" ;;
    put) echo "$change --owner --time" ;;
    mkdir) echo "$change --parents --mode --owner" ;;
    rm) echo "$change --recursive --dir --force" ;;
    mv) echo "$change --no-clobber" ;;
    ln) echo "$change --symbolic --force --owner" ;;
    chmod) echo "$change" ;;
    chown) echo "$change --no-dereference" ;;
    touch) echo "$change --date --no-create -a -m" ;;
    truncate) echo "$change --size --no-create" ;;
    mount) echo "$common --foreground" ;;
    *) echo "--help" ;;
    esac
}

_uext4() {
    local commands='info ls stat cat get map put mkdir rm mv ln chmod chown touch truncate recover
        mount umount version help'
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} image='' position=0 i
    local -a place=()

    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
        return
    fi
    case $previous in
    --offset | --partition | -j | --jobs | --time | --date | --size | --mode) return ;;
    --owner)
        mapfile -t COMPREPLY < <(compgen -u -- "$word")
        return
        ;;
    -o | --options)
        mapfile -t COMPREPLY < <(compgen -W 'noload nochecksum sb= cache= direct=auto direct=on
            direct=off' -- "$word")
        return
        ;;
    esac
    if [[ $command == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_uext4_options "$command")" -- "$word")
        return
    fi

    # Find the image, the options that say where in it to look, and which argument this is.
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --offset | --partition | -o | --options)
            place+=("${COMP_WORDS[i]}" "${COMP_WORDS[++i]}")
            ;;
        -j | --jobs | --owner | --time | --mode | --date | --size) ((i++)) ;;
        -d) [[ $command != touch ]] || ((i++)) ;;
        -m) [[ $command != mkdir ]] || ((i++)) ;;
        -s) [[ $command != truncate ]] || ((i++)) ;;
        --noload) place+=(--noload) ;;
        -*) ;;
        *)
            ((position++))
            [[ -n $image ]] || image=${COMP_WORDS[i]}
            ;;
        esac
    done
    compopt -o filenames 2>/dev/null
    if [[ $position -eq 0 ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    fi
    case $command in
    put)
        _uext4_image_paths "$(_uext4_plain "$image")" "$word" "${place[@]}"
        while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$word")
        ;;
    chmod | chown)
        [[ $position -lt 2 ]] || _uext4_image_paths "$(_uext4_plain "$image")" "$word" "${place[@]}"
        ;;
    ls | stat | cat | map | get | mkdir | rm | mv | ln | touch | truncate)
        compopt +o filenames 2>/dev/null
        _uext4_image_paths "$(_uext4_plain "$image")" "$word" "${place[@]}"
        if [[ $command == get && $position -ge 2 ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$word")
        fi
        ;;
    mount) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    esac
}

complete -F _uext4 uext4
