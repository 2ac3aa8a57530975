"""MCP server of Taugate, through which agents search and judge results (Model Context Protocol).

`taugate-mcp --url URL` starts it. It needs the extra `mcp` of taugate-client.
"""
