# Does not listen to polite requests.
trap "" TERM INT HUP
exec sleep 20
