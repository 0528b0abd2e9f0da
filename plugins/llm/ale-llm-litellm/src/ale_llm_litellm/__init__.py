"""Language models of many providers, by way of litellm."""
