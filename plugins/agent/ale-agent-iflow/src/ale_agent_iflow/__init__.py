"""The tool-calling agent of `ale`. Its loop is `ale_agent_iflow.loop`; start reading there."""
