{{/* The restricted level of Kubernetes' pod security standards, and a read-only root file system. */}}

{{- define "taugate.containerSecurity" -}}
{{- toYaml .Values.containerSecurityContext }}
{{- end }}

{{/*
Of every pod, of whatever image. A Service named taugate would otherwise give each pod a variable TAUGATE_PORT=tcp://…,
which is also the name of a setting: enableServiceLinks is off.
*/}}
{{- define "taugate.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* For every pod with an image of taugate. */}}
{{- define "taugate.pod" -}}
{{ include "taugate.podBasics" . }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}
