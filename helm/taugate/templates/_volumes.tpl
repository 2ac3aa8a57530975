{{/* Volumes of several pods. */}}

{{/* A list of the values, as it is. */}}
{{- define "taugate.asGiven" -}}
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "taugate.releasesClaim" -}}
{{- default (printf "%s-releases" (include "taugate.fullname" .)) .Values.releases.volume.existingClaim }}
{{- end }}

{{/* Public keys: a Secret whose *.pem files are read. */}}
{{- define "taugate.trustedVolume" -}}
{{- with .Values.trustedKeys.existingSecret }}
- name: trusted
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* The engine's token or password, as a file so that it is in no environment. */}}
{{- define "taugate.engineMount" -}}
{{- if .Values.engine.tokenSecret }}
- name: engine
  mountPath: /etc/taugate/engine
  readOnly: true
{{- end }}
{{- end }}

{{- define "taugate.engineVolume" -}}
{{- with .Values.engine.tokenSecret }}
- name: engine
  secret:
    secretName: {{ include "taugate.secret" (list .) }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* The keys of these endpoints, likewise. */}}
{{- define "taugate.endpointsMount" -}}
{{- range $name, $endpoint := include "taugate.endpoints" . | fromJson }}
{{- if $endpoint.keySecret }}
- name: {{ $name }}
  mountPath: /etc/taugate/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "taugate.endpointsVolume" -}}
{{- range $name, $endpoint := include "taugate.endpoints" . | fromJson }}
{{- with $endpoint.keySecret }}
- name: {{ $name }}
  secret:
    secretName: {{ include "taugate.secret" (list .) }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end }}

{{/* A claim, or a volume that is deleted with the pod: (list name claim size). */}}
{{- define "taugate.claimOrEmpty" -}}
- name: {{ index . 0 }}
  {{- if index . 1 }}
  persistentVolumeClaim:
    claimName: {{ index . 1 }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ index . 2 }}
  {{- end }}
{{- end }}

{{/*
All pods that mount a volume of one node are kept there. The first of them matches itself, so that it can start. Takes
(list context affinity-given).
*/}}
{{- define "taugate.affinity" -}}
{{- $context := index . 0 }}
{{- $volume := $context.Values.releases.volume }}
{{- if and (not $context.Values.releases.url) (eq $volume.accessMode "ReadWriteOnce") }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (dict "taugate/releases" (include "taugate.fullname" $context))) }}
{{- $pods := dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) }}
affinity:
  {{- toYaml (mergeOverwrite (dict "podAffinity" $pods) (index . 1)) | nindent 2 }}
{{- else if index . 1 }}
affinity:
  {{- toYaml (index . 1) | nindent 2 }}
{{- end }}
{{- end }}

{{/* The label by which pods that mount the releases find one another. */}}
{{- define "taugate.releasesLabel" -}}
{{- if not .Values.releases.url -}}
taugate/releases: {{ include "taugate.fullname" . }}
{{- end }}
{{- end }}
