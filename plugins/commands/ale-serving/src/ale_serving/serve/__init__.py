"""Any model of `ale` behind the OpenAI chat API."""
