"""The command ``ale new``: writes a plugin package that installs, is found and passes its kit."""
