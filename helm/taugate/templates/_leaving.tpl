{{/* How a pod leaves: before SIGTERM, and how long after it. */}}

{{/* Seconds before SIGTERM: (list context seconds), of which the second are those that the container serves on after it. */}}
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

{{/* Longer than all that happens in it: preStop, the drain period, requests in flight, and five seconds to end processes and write logs. */}}
{{- define "taugate.gracePeriod" -}}
{{- $drain := include "taugate.drain" . | atoi }}
{{- add (include "taugate.preStop" (list . $drain) | atoi) $drain (include "taugate.setting" (list . "shutdown_seconds") | atoi) 5 }}
{{- end }}
