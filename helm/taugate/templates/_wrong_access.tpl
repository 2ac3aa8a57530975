{{/* Each line is what is wrong and what to do. The first one is said. */}}

{{- define "taugate.wrong.access" -}}
{{- $keys := .Values.keys }}
{{- if and $keys.existingSecret $keys.entries }}
keys.existingSecret and keys.entries are both given: keep the Secret, or let the chart make one of the entries
{{- end }}
{{- if not (or (include "taugate.hasKeys" .) .Values.settings.allow_unauthenticated .Values.settings.allow_anyone) }}
there are no API keys, and the service does not start without: make one with `taugate key new --name shop --scopes search,feedback --file keys.json`, put the file into a Secret with `kubectl create secret generic taugate-keys --from-file=keys.json` and name it in keys.existingSecret; or let everybody in with settings.allow_unauthenticated=true
{{- end }}
{{- with .Values.trustedKeys }}
{{- if gt (len (compact (list .pem .existingConfigMap .existingSecret))) 1 }}
trustedKeys.pem, trustedKeys.existingConfigMap and trustedKeys.existingSecret exclude one another: keep one
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.env }}
{{- if hasPrefix "TAUGATE_" $name }}
env.{{ $name }} is a setting of taugate: give it as settings.{{ $name | trimPrefix "TAUGATE_" | lower }}, or where helm/taugate/README.md has it
{{- end }}
{{- end }}
{{- range $new, $older := dict "allow_unauthenticated" "allow_anyone" "drift_average_run_length" "drift_seldom" }}
{{- if not (or (kindIs "invalid" (index $.Values.settings $new)) (kindIs "invalid" (index $.Values.settings $older))) }}
settings.{{ $new }} and its older name settings.{{ $older }} are both given: keep settings.{{ $new }}
{{- end }}
{{- end }}
{{- if gt (include "taugate.setting" (list . "max_batch") | atoi) (include "taugate.setting" (list . "queue_limit") | atoi) }}
settings.max_batch is over settings.queue_limit, so that no full batch would ever be admitted: lower it, or raise the limit
{{- end }}
{{- end }}

{{- define "taugate.wrong.monitoring" -}}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled (include "taugate.hasKeys" $) (not .key.existingSecret) }}
metrics.serviceMonitor would be refused, as there are API keys: put one of scope `metrics` into a Secret and name it in metrics.serviceMonitor.key.existingSecret
{{- end }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
ingress.enabled without a host lets nobody in: name one in ingress.hosts, with its paths
{{- end }}
{{- end }}

{{- define "taugate.wrong.redis" -}}
{{- $redis := .Values.redis }}
{{- if gt (len (compact (list $redis.url $redis.existingSecret (ternary "own" "" $redis.enabled)))) 1 }}
redis.url, redis.existingSecret and redis.enabled exclude one another: keep the Redis that is there, or the chart's own
{{- end }}
{{- if and $redis.enabled (not $redis.password) (not $redis.passwordSecret.existingSecret) }}
redis.enabled needs a password: give redis.password, as of `openssl rand -hex 24`, or name a Secret that has one in redis.passwordSecret.existingSecret
{{- end }}
{{- if and $redis.password $redis.passwordSecret.existingSecret }}
redis.password and redis.passwordSecret.existingSecret are both given: keep one
{{- end }}
{{- end }}

{{- define "taugate.wrong.engine" -}}
{{- if and .Values.engine.tokenSecret.existingSecret (not .Values.engine.url) }}
engine.tokenSecret is of no use without an engine: name its servers in engine.url
{{- end }}
{{- if and (hasPrefix "http" (.Values.engine.url | default "")) (regexMatch "(^|/)taugate/service(-gpu)?$" .Values.image.repository) }}
engine.url names Milvus, and {{ .Values.image.repository }} has no client of it: build the target service-milvus of deploy/docker/Dockerfile and name that image in image.repository
{{- end }}
{{- end }}

{{- define "taugate.wrong.mcp" -}}
{{- $mcp := .Values.mcp }}
{{- if and $mcp.enabled (include "taugate.hasKeys" .) (not $mcp.key) (not $mcp.keySecret.existingSecret) }}
mcp.enabled needs an API key, as there are API keys: put one of the scopes search and feedback into a Secret and name it in mcp.keySecret.existingSecret
{{- end }}
{{- if and $mcp.key $mcp.keySecret.existingSecret }}
mcp.key and mcp.keySecret.existingSecret are both given: keep one
{{- end }}
{{- end }}
