"""Language models behind the OpenAI chat API, hosted or local."""
