#!/bin/bash
[ "$(id -un)" = worker ] || exit 1
as-root -c 'import os; os.setuid(0); os.setgid(0); os.execvp("sh", ["sh", "-c", "id -un >/etc/made; chown worker /etc/made"])'
