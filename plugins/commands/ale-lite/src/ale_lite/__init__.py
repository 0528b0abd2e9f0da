"""ALE-lite's four commands and its config file, over the parts and commands of `ale`."""
