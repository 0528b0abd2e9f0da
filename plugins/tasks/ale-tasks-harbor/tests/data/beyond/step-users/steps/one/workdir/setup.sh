id -u >/tmp/setup
