{{/* The container of the service. */}}

{{- define "taugate.serviceContainer" -}}
image: {{ include "taugate.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef:
      name: {{ include "taugate.fullname" . }}
  {{- include "taugate.envFrom" (list . (and .Values.releases.url .Values.releases.objectStorage)) | nindent 2 }}
{{- with include "taugate.serviceEnv" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
ports:
  - name: http
    containerPort: 8000
    protocol: TCP
startupProbe:
  {{- include "taugate.probe" (list "/readyz" (include "taugate.startup" . | fromYaml) dict) | nindent 2 }}
livenessProbe:
  {{- include "taugate.probe" (list "/livez" (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 3) (default dict .Values.probes.liveness)) | nindent 2 }}
readinessProbe:
  {{- include "taugate.probe" (list "/readyz" (dict "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2) (default dict .Values.probes.readiness)) | nindent 2 }}
{{- with include "taugate.preStop" (list . (include "taugate.drain" . | atoi)) | atoi }}
# Until every proxy has heard that the pod is leaving, it answers as before.
lifecycle:
  preStop:
    sleep:
      seconds: {{ . }}
{{- end }}
resources:
  {{- $room := ternary .Values.releases.copySize "256Mi" (include "taugate.copies" . | empty | not) }}
  {{- include "taugate.resources" (list .Values.resources $room) | nindent 2 }}
securityContext:
  {{- include "taugate.containerSecurity" . | nindent 2 }}
volumeMounts:
  {{- include "taugate.serviceMounts" . | nindent 2 }}
{{- end }}

{{/* (list path fields given) */}}
{{- define "taugate.probe" -}}
httpGet:
  path: {{ index . 0 }}
  port: http
{{ include "taugate.replaced" (rest .) }}
{{- end }}

{{- define "taugate.startup" -}}
{{- include "taugate.replaced" (list (dict "periodSeconds" 2 "timeoutSeconds" 5 "failureThreshold" 300) (default dict .Values.probes.startup)) }}
{{- end }}

{{- define "taugate.serviceMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if not .Values.releases.url }}
- name: releases
  mountPath: /releases
  readOnly: true
{{- end }}
{{- if include "taugate.copies" . }}
- name: cache
  mountPath: /cache
{{- end }}
{{- if include "taugate.keysSecret" . }}
- name: keys
  mountPath: /etc/taugate/keys
  readOnly: true
{{- end }}
{{- if include "taugate.trusts" . }}
- name: trusted
  mountPath: /etc/taugate/trusted
  readOnly: true
{{- end }}
{{- include "taugate.engineMount" . }}
{{- include "taugate.endpointsMount" . }}
{{- if .Values.queryLog.enabled }}
- name: queries
  mountPath: /queries
  {{- if .Values.queryLog.existingClaim }}
  subPathExpr: $(POD_NAME)
  {{- end }}
{{- end }}
{{- include "taugate.asGiven" .Values.extraVolumeMounts }}
{{- end }}

{{- define "taugate.serviceVolumes" -}}
- name: tmp
  emptyDir: {}
{{- if not .Values.releases.url }}
- name: releases
  persistentVolumeClaim:
    claimName: {{ include "taugate.releasesClaim" . }}
    {{- if eq .Values.releases.volume.accessMode "ReadOnlyMany" }}
    # Drivers attach it to several nodes only where no pod asks to write.
    readOnly: true
    {{- end }}
{{- end }}
{{- if include "taugate.copies" . }}
{{ include "taugate.claimOrEmpty" (list "cache" nil .Values.releases.copySize) }}
{{- end }}
{{- with include "taugate.keysSecret" . }}
- name: keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- include "taugate.trustedVolume" . }}
{{- include "taugate.engineVolume" . }}
{{- include "taugate.endpointsVolume" . }}
{{- with .Values.queryLog }}
{{- if .enabled }}
{{ include "taugate.claimOrEmpty" (list "queries" .existingClaim .size) }}
{{- end }}
{{- end }}
{{- include "taugate.asGiven" .Values.extraVolumes }}
{{- end }}
