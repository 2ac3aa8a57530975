{{/* How a pod stops: the delay before SIGTERM, and the time after it. */}}

{{/* Seconds before SIGTERM: (list context seconds), where `seconds` is the time that the container keeps serving after it. */}}
{{- define "taugate.preStop" -}}
{{- $context := index . 0 }}
{{- if kindIs "invalid" $context.Values.rollout.preStopSeconds }}
{{- max 0 (sub 5 (index . 1)) }}
{{- else }}
{{- $context.Values.rollout.preStopSeconds }}
{{- end }}
{{- end }}

{{- define "taugate.drain" -}}
{{- include "taugate.setting" (list . "drain_seconds") }}
{{- end }}

{{/* Longer than preStop, the drain period and requests in flight together, plus five seconds to end processes and write logs. */}}
{{- define "taugate.gracePeriod" -}}
{{- $drain := include "taugate.drain" . | atoi }}
{{- add (include "taugate.preStop" (list . $drain) | atoi) $drain (include "taugate.setting" (list . "shutdown_seconds" "drain_seconds" "shutdown_seconds") | atoi) 5 }}
{{- end }}
