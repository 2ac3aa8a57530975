{{/* What a calibration reads and writes. */}}

{{- define "taugate.calibrationEnv" -}}
- name: TAUGATE_CACHE
  value: /cache
# A model that is named rather than in the image is fetched here.
- name: HF_HOME
  value: /cache/huggingface
{{- if include "taugate.trusts" . }}
- name: TAUGATE_TRUSTED_KEYS
  value: /etc/taugate/trusted
{{- end }}
{{- with .Values.recalibration.signingPassphrase }}
{{- if .existingSecret }}
{{ include "taugate.fromSecret" (list "TAUGATE_SIGNING_PASSPHRASE" .existingSecret .key) }}
{{- end }}
{{- end }}
{{- include "taugate.storageEnv" .Values.recalibration.objectStorage }}
{{- include "taugate.plainEnv" .Values.recalibration.env }}
{{- end }}

{{/* The directory in which releases are made: that of the service, or one whose releases are pushed to its URL. */}}
{{- define "taugate.workClaim" -}}
{{- if .Values.releases.volume.enabled }}
{{- include "taugate.releasesClaim" . }}
{{- else }}
{{- default (printf "%s-calibration" (include "taugate.fullname" .)) .Values.recalibration.workVolume.existingClaim }}
{{- end }}
{{- end }}

{{- define "taugate.calibrationMounts" -}}
- name: tmp
  mountPath: /tmp
- name: cache
  mountPath: /cache
- name: releases
  mountPath: /releases
{{- if .Values.recalibration.data.existingClaim }}
- name: data
  mountPath: /data
  readOnly: true
{{- end }}
{{- if .Values.recalibration.signingKey.existingSecret }}
- name: signing
  mountPath: /etc/taugate/signing
  readOnly: true
{{- end }}
{{- if include "taugate.trusts" . }}
- name: trusted
  mountPath: /etc/taugate/trusted
  readOnly: true
{{- end }}
{{- end }}

{{- define "taugate.calibrationVolumes" -}}
{{- $values := .Values.recalibration -}}
- name: tmp
  emptyDir: {}
{{ include "taugate.claimOrEmpty" (list "cache" $values.cache.existingClaim $values.cache.size) }}
- name: releases
  persistentVolumeClaim:
    claimName: {{ include "taugate.workClaim" . }}
{{- with $values.data.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- with $values.signingKey.existingSecret }}
- name: signing
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- include "taugate.trustedVolume" . }}
{{- end }}

{{- define "taugate.calibrates" -}}
{{- if or .Values.recalibration.cronJob.enabled .Values.recalibration.job.enabled }}true{{ end }}
{{- end }}
