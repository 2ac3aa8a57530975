{{/* Conflicting values of replicas and processors. */}}

{{- define "taugate.wrong.scaling" -}}
{{- $scaling := .Values.autoscaling }}
{{- if and $scaling.enabled (gt (int .Values.replicas) (int $scaling.maxReplicas)) }}
replicas, from which autoscaling starts, is over autoscaling.maxReplicas: lower it
{{- end }}
{{- if and $scaling.enabled (not $scaling.targetQueueDepth) (not .Values.resources.requests.cpu) }}
autoscaling on cpu uses a share of resources.requests.cpu, which is missing: set it, or autoscaling.targetQueueDepth
{{- end }}
{{- if not (or .Values.resources.limits.cpu (ne (include "taugate.setting" (list . "encoder_threads" "workers" "encoder_threads")) "null")) }}
without resources.limits.cpu a pod uses all processors of its node to encode: set a limit, or settings.workers to both numbers, such as 1,encoder_threads=4
{{- end }}
{{- range list .Values.affinity (default dict .Values.recalibration.pod.affinity) }}
{{- if and (eq $.Values.releases.volume.accessMode "ReadWriteOnce") .podAffinity }}
releases.volume.accessMode=ReadWriteOnce sets affinity.podAffinity itself: remove yours
{{- end }}
{{- end }}
{{- end }}
