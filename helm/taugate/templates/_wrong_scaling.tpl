{{/* How many pods there are, and how many processors each takes: what does not go together. */}}

{{- define "taugate.wrong.scaling" -}}
{{- $scaling := .Values.autoscaling }}
{{- if and $scaling.enabled .Values.replicas }}
replicas and autoscaling.enabled exclude one another: leave out replicas, and give autoscaling.minReplicas
{{- end }}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) }}
autoscaling.minReplicas is over autoscaling.maxReplicas: lower it
{{- end }}
{{- if and $scaling.enabled (eq $scaling.metric "cpu") (not .Values.resources.requests.cpu) }}
autoscaling on cpu is by share of resources.requests.cpu, which is missing: give it, or use autoscaling.metric=queueDepth
{{- end }}
{{- if not (or .Values.resources.limits.cpu (and .Values.settings.workers .Values.settings.encoder_threads)) }}
without resources.limits.cpu a pod takes all processors of its node for its own, and encodes on each: give a limit, or settings.workers and settings.encoder_threads
{{- end }}
{{- if and .Values.releases.volume.oneNode .Values.affinity.podAffinity }}
releases.volume.oneNode is an affinity.podAffinity of its own: leave out yours
{{- end }}
{{- end }}
