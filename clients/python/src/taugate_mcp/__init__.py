"""MCP server of Taugate: agents search, and judge what they found, through the Model Context Protocol.

`taugate-mcp --url URL` starts it. It needs the extra `mcp` of taugate-client.
"""
