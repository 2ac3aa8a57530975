{{/* The MCP server. */}}

{{/* The names of its Service, separated by commas, which agents use. */}}
{{- define "taugate.mcpHosts" -}}
{{- $service := printf "%s-mcp" (include "taugate.fullname" .) }}
{{- $within := printf "%s.%s" $service .Release.Namespace }}
{{- $hosts := list $service $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) }}
{{- concat $hosts .Values.mcp.allowedHosts | uniq | join "," }}
{{- end }}

{{/* Longer than preStop plus fifteen seconds for requests in flight. */}}
{{- define "taugate.mcpGracePeriod" -}}
{{- add (include "taugate.preStop" (list . 0) | atoi) 20 }}
{{- end }}
