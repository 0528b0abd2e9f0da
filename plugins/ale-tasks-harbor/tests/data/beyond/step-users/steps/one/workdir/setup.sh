id -u >who.setup
