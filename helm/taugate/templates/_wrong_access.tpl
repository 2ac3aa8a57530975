{{/* Every line is a message with the problem and its remedy. The first one is shown. */}}

{{- define "taugate.wrong.access" -}}
{{- $keys := .Values.keys }}
{{- if and $keys.existingSecret $keys.entries }}
keys.existingSecret and keys.entries are both given: keep the Secret, or let the chart create one from the entries
{{- end }}
{{- if not (or (include "taugate.hasKeys" .) .Values.settings.allow_unauthenticated .Values.settings.allow_anyone) }}
there are no API keys, and the service does not start without one: create one with `taugate key new --name shop --scopes search,feedback --file keys.json`, put the file into a Secret with `kubectl create secret generic taugate-keys --from-file=keys.json` and name it in keys.existingSecret; or allow unauthenticated access with settings.allow_unauthenticated=true
{{- end }}
{{- range $name, $_ := .Values.env }}
{{- if hasPrefix "TAUGATE_" $name }}
env.{{ $name }} is a setting of taugate: use settings.{{ $name | trimPrefix "TAUGATE_" | lower }}, or the value that helm/taugate/README.md lists for it
{{- end }}
{{- end }}
{{- range $new, $older := dict "allow_unauthenticated" "allow_anyone" }}
{{- if not (or (kindIs "invalid" (index $.Values.settings $new)) (kindIs "invalid" (index $.Values.settings $older))) }}
settings.{{ $new }} and its older name settings.{{ $older }} are both given: keep settings.{{ $new }}
{{- end }}
{{- end }}
{{- if gt (include "taugate.setting" (list . "max_batch") | atoi) (include "taugate.setting" (list . "queue_limit") | atoi) }}
settings.max_batch is over settings.queue_limit, so a full batch could never be enqueued: lower it, or raise the limit
{{- end }}
{{- end }}

{{- define "taugate.wrong.monitoring" -}}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled (include "taugate.hasKeys" $) (not .key) }}
metrics.serviceMonitor would be refused because there are API keys: put one of scope `metrics` into a Secret and name it in metrics.serviceMonitor.key
{{- end }}
{{- end }}
{{- if and .Values.httpRoute (not .Values.httpRoute.parentRefs) }}
httpRoute without parentRefs belongs to no Gateway: name one, such as httpRoute.parentRefs=[{name: public}]
{{- end }}
{{- end }}

{{- define "taugate.wrong.redis" -}}
{{- $redis := .Values.redis }}
{{- if gt (len (compact (list $redis.url $redis.existingSecret (ternary "own" "" $redis.enabled)))) 1 }}
redis.url, redis.existingSecret and redis.enabled exclude one another: keep the existing Redis, or the chart's own
{{- end }}
{{- if and $redis.enabled (not $redis.passwordSecret) }}
redis.enabled needs a password: put one, such as the output of `openssl rand -hex 24`, into a Secret, and name it in redis.passwordSecret
{{- end }}
{{- end }}

{{- define "taugate.wrong.engine" -}}
{{- if and .Values.engine.tokenSecret (not .Values.engine.url) }}
engine.tokenSecret has no effect without an engine: set engine.url to its servers
{{- end }}
{{- range $name := list "encoderEndpoint" "rerankEndpoint" }}
{{- $endpoint := index $.Values $name }}
{{- if and $endpoint.keySecret (not $endpoint.url) }}
{{ $name }}.keySecret is sent to no other URL than {{ $name }}.url: set it
{{- end }}
{{- end }}
{{- if and (hasPrefix "http" (.Values.engine.url | default "")) (regexMatch "(^|/)taugate/service(-gpu)?$" .Values.image.repository) }}
engine.url names Milvus, but {{ .Values.image.repository }} has no client for it: build the target service-milvus of deploy/docker/Dockerfile and name that image in image.repository
{{- end }}
{{- end }}

{{- define "taugate.wrong.mcp" -}}
{{- $mcp := .Values.mcp }}
{{- if and $mcp.enabled (include "taugate.hasKeys" .) (not $mcp.keySecret) }}
mcp.enabled needs an API key because the service has keys: put one with the scopes search and feedback into a Secret and name it in mcp.keySecret
{{- end }}
{{- end }}
