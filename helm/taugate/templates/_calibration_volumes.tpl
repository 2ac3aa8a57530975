{{/* Variables and volumes of a calibration, and the name of its Job. */}}

{{/* The end of the Job's name: not of the revision, so that what renders the chart twice gets the same objects. */}}
{{- define "taugate.jobSuffix" -}}
{{- $job := .Values.recalibration.job }}
{{- include "taugate.jobSpec" (list . "calibrate" $job.arguments) | cat $job.run | sha256sum | trunc 8 | printf "-calibrate-%s" }}
{{- end }}

{{/* (list context name-of-the-container): a container that only pushes does not need the private key. */}}
{{- define "taugate.calibrationEnv" -}}
{{- $context := index . 0 }}
{{- $values := $context.Values.recalibration -}}
- name: JOB_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['batch.kubernetes.io/job-name']
# Of the Job, and of what started it if the values say so, for the history.
- name: TAUGATE_BY
  value: {{ printf "$(JOB_NAME) %s" $values.job.run | trim | quote }}
- name: TAUGATE_CACHE
  value: /cache
# A model that is named rather than in the image is fetched here.
- name: HF_HOME
  value: /cache/huggingface
{{- if include "taugate.trusts" $context }}
- name: TAUGATE_TRUSTED_KEYS
  value: /etc/taugate/trusted
{{- end }}
{{- if ne (index . 1) "push" }}
{{- with $values.signingKey }}
- name: TAUGATE_SIGNING_KEY
  value: {{ include "taugate.entry" (list . "signing.key") | printf "/etc/taugate/signing/%s" | quote }}
{{- end }}
{{- with $values.signingPassphrase }}
{{ include "taugate.fromSecret" (list "TAUGATE_SIGNING_PASSPHRASE" . "passphrase") }}
{{- end }}
{{- end }}
{{- include "taugate.engineEnv" $context }}
{{- include "taugate.endpointsEnv" $context }}
{{- include "taugate.plainEnv" $values.env }}
{{- end }}

{{/* The directory of new releases: that of the service, or one whose releases are pushed to the URL. */}}
{{- define "taugate.workClaim" -}}
{{- if .Values.releases.url }}
{{- default (printf "%s-calibration" (include "taugate.fullname" .)) .Values.releases.volume.existingClaim }}
{{- else }}
{{- include "taugate.releasesClaim" . }}
{{- end }}
{{- end }}

{{/* (list context name-of-the-container) */}}
{{- define "taugate.calibrationMounts" -}}
{{- $context := index . 0 }}
{{- $values := $context.Values.recalibration -}}
- name: tmp
  mountPath: /tmp
- name: cache
  mountPath: /cache
- name: releases
  mountPath: /releases
{{- if $values.data.existingClaim }}
- name: data
  mountPath: /data
  readOnly: true
{{- end }}
{{- if and $values.signingKey (ne (index . 1) "push") }}
- name: signing
  mountPath: /etc/taugate/signing
  readOnly: true
{{- end }}
{{- if include "taugate.trusts" $context }}
- name: trusted
  mountPath: /etc/taugate/trusted
  readOnly: true
{{- end }}
{{- include "taugate.engineMount" $context }}
{{- include "taugate.endpointsMount" $context }}
{{- include "taugate.asGiven" $context.Values.extraVolumeMounts }}
{{- end }}

{{- define "taugate.calibrationVolumes" -}}
{{- $values := .Values.recalibration -}}
{{ include "taugate.claimOrEmpty" (list "tmp" nil $values.tmpSize) }}
{{ include "taugate.claimOrEmpty" (list "cache" $values.cache.existingClaim $values.tmpSize) }}
- name: releases
  persistentVolumeClaim:
    claimName: {{ include "taugate.workClaim" . }}
{{- with $values.data.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ splitList "/" . | first }}
{{- end }}
{{- with $values.signingKey }}
- name: signing
  secret:
    secretName: {{ include "taugate.secret" (list .) }}
    defaultMode: 0440
{{- end }}
{{- include "taugate.trustedVolume" . }}
{{- include "taugate.engineVolume" . }}
{{- include "taugate.endpointsVolume" . }}
{{- include "taugate.asGiven" .Values.extraVolumes }}
{{- end }}

{{- define "taugate.calibrates" -}}
{{- if or .Values.recalibration.cronJob.enabled .Values.recalibration.job.enabled .Values.recalibration.prune }}true{{ end }}
{{- end }}

{{/* A Job outlives the upgrade that disables it, so its pod's resources are kept as long as data is configured. */}}
{{- define "taugate.mayCalibrate" -}}
{{- if or (include "taugate.calibrates" .) .Values.recalibration.data.url .Values.recalibration.data.existingClaim }}true{{ end }}
{{- end }}
