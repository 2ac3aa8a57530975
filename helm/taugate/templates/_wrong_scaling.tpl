{{/* Conflicting values of replicas and processors. */}}

{{- define "taugate.wrong.scaling" -}}
{{- $scaling := .Values.autoscaling }}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) }}
autoscaling.minReplicas is over autoscaling.maxReplicas: lower it
{{- end }}
{{- if and $scaling.enabled (eq $scaling.metric "cpu") (not .Values.resources.requests.cpu) }}
autoscaling on cpu uses a share of resources.requests.cpu, which is missing: set it, or use autoscaling.metric=queueDepth
{{- end }}
{{- if not (or .Values.resources.limits.cpu (ne (include "taugate.setting" (list . "encoder_threads" "workers" "encoder_threads")) "null")) }}
without resources.limits.cpu a pod uses all processors of its node to encode: set a limit, or settings.workers to both numbers, such as 1,encoder_threads=4
{{- end }}
{{- range list .Values.affinity .Values.recalibration.affinity }}
{{- if and $.Values.releases.volume.oneNode .podAffinity }}
releases.volume.oneNode sets affinity.podAffinity itself: remove yours
{{- end }}
{{- end }}
{{- end }}
