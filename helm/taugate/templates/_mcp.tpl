{{/* The MCP server. */}}

{{- define "taugate.mcpKeyEnv" -}}
{{- with .Values.mcp }}
{{- if .keySecret.existingSecret }}
{{ include "taugate.fromSecret" (list "TAUGATE_KEY" .keySecret.existingSecret .keySecret.key) }}
{{- else if .key }}
{{ include "taugate.fromSecret" (list "TAUGATE_KEY" (printf "%s-mcp" (include "taugate.fullname" $)) "key") }}
{{- end }}
{{- end }}
{{- end }}

{{/* Its Service's names, by commas: agents ask for one of them. */}}
{{- define "taugate.mcpHosts" -}}
{{- $service := printf "%s-mcp" (include "taugate.fullname" .) }}
{{- $within := printf "%s.%s" $service .Release.Namespace }}
{{- $hosts := list $service $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) }}
{{- concat $hosts .Values.mcp.allowedHosts | uniq | join "," }}
{{- end }}

{{/* Longer than preStop and the fifteen seconds that it gives requests in flight. */}}
{{- define "taugate.mcpGracePeriod" -}}
{{- add (include "taugate.preStop" (list . 0) | atoi) 20 }}
{{- end }}
