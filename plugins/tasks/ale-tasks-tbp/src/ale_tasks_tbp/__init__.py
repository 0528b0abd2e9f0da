"""Tasks in the TBP format: YAML files read strictly into `ale.types.Task`."""
