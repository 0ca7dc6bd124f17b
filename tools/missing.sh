# For scripts that source it: what a tool, a device or a right that is missing means (as `missing` of test/need).

# missing NEED WHAT WHY: says that WHAT is not run; fails where ZIRCONIA_STRICT is 1 or names NEED.
missing() {
    case ",${ZIRCONIA_STRICT:-}," in
    *,1,* | *",$1,"*)
        echo "FAIL  $2: $3 (ZIRCONIA_STRICT=$ZIRCONIA_STRICT lets nothing be left out)" >&2
        return 1
        ;;
    esac
    echo "not run: $2 ($3)"
}
