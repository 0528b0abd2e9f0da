echo "no input" >&2
exit 3
