"""Language models of many providers, through litellm."""
