{{/* The pod of the CronJobs and of the Job. */}}

{{/* A Job's spec: (list context command arguments). The command is calibrate or recalibrate; arguments, if any, replace it. */}}
{{- define "taugate.jobSpec" -}}
{{- $context := index . 0 }}
{{- $command := index . 1 }}
{{- $arguments := index . 2 }}
{{- $values := $context.Values.recalibration -}}
# Bad input, no safe threshold and a rule that does not hold stay so when they are tried again. A pod that a drain or a
# node short of memory or disk took is no failure, and has another in its place, until activeDeadlineSeconds are over;
# one that fills a volume of its own has failed.
backoffLimit: 0
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        operator: In
        values: [2, 3, 4, 5]
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
{{- with $values.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ . }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "taugate.podLabels" (list $context "calibration") | nindent 6 }}
      {{- include "taugate.releasesLabel" $context | nindent 6 }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "taugate.account" (list $context $values.serviceAccount "-calibration") }}
    {{- include "taugate.pod" $context | nindent 4 }}
    {{- if $arguments }}
    containers:
      {{- include "taugate.calibrationContainer" (list $context (ternary "prune" "command" (eq $command "prune")) $arguments) | nindent 6 }}
    {{- else if and $context.Values.releases.url $values.promotion.enabled }}
    # One after the other, each with its exit code: what was not promoted is not pushed.
    initContainers:
      {{- include "taugate.calibrationContainer" (list $context $command (include "taugate.calibrate" (list $context $command) | fromJsonArray)) | nindent 6 }}
    containers:
      {{- $push := list "release" "push" "--releases" "/releases" "--to" $context.Values.releases.url "--promote" }}
      {{- include "taugate.calibrationContainer" (list $context "push" $push) | nindent 6 }}
    {{- else }}
    containers:
      {{- include "taugate.calibrationContainer" (list $context $command (include "taugate.calibrate" (list $context $command) | fromJsonArray)) | nindent 6 }}
    {{- end }}
    volumes:
      {{- include "taugate.calibrationVolumes" $context | nindent 6 }}
    {{- with printf "%s%s" (include "taugate.affinity" (list $context (default dict $values.pod.affinity))) (include "taugate.asFields" (omit $values.pod "affinity")) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* (list context name arguments) */}}
{{- define "taugate.calibrationContainer" -}}
{{- $context := index . 0 }}
{{- $values := $context.Values.recalibration -}}
{{- $small := dict "requests" (dict "cpu" "100m" "memory" "256Mi") "limits" (dict "memory" "512Mi") }}
{{- $large := dict "requests" (dict "cpu" "2" "memory" "2Gi") "limits" (dict "cpu" "2" "memory" "4Gi") }}
{{- $resources := ternary $small (merge (dict) $values.resources $large) (eq (index . 1) "prune") -}}
- name: {{ index . 1 }}
  image: {{ include "taugate.image" (list $context $values.image) }}
  imagePullPolicy: {{ $context.Values.image.pullPolicy }}
  args:
    {{- toYaml (index . 2) | nindent 4 }}
  {{- with include "taugate.envFrom" (list $context $values.objectStorage) }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  env:
    {{- include "taugate.calibrationEnv" . | nindent 4 }}
  resources:
    {{- include "taugate.resources" (list $resources "2Gi") | nindent 4 }}
  securityContext:
    {{- include "taugate.containerSecurity" $context | nindent 4 }}
  volumeMounts:
    {{- include "taugate.calibrationMounts" . | nindent 4 }}
{{- end }}
