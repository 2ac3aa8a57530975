{{/* The restricted level of Kubernetes' pod security standards, and a read-only root file system. */}}

{{/*
10001 is the user of the images. fsGroup gives its group a volume that one node mounts, such as a disk; NFS and most
drivers of ReadWriteMany leave volumes as they are, so that their root has to belong to 10001 (README, Where releases are).
*/}}
{{- define "taugate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "taugate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
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
  {{- include "taugate.podSecurity" . | nindent 2 }}
{{- end }}
