{{/* The pod of the CronJob and of the Job. */}}

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
      {{- include "taugate.calibrationContainer" (list $context "command" $arguments) | nindent 6 }}
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
    {{- with printf "%s%s" (include "taugate.affinity" (list $context dict)) (include "taugate.nodes" $values) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The arguments of calibrate or recalibrate, as a JSON array: (list context command). */}}
{{- define "taugate.calibrate" -}}
{{- $command := index . 1 }}
{{- $values := (index . 0).Values.recalibration }}
{{- $data := default (printf "/data/%s" $values.data.path | trimSuffix "/") $values.data.url }}
{{- $own := ternary $values.arguments $values.cronJob.arguments (eq $command "calibrate") }}
{{- $arguments := concat (list $command $data "--releases" "/releases") $own }}
{{- if not $values.promotion.enabled }}
{{- $arguments = append $arguments "--no-promote" }}
{{- else if $values.promotion.rule }}
{{- $arguments = concat $arguments (include "taugate.ruleArguments" $values.promotion.rule | fromJsonArray) }}
{{- else }}
{{- with $values.promotion.maxAccuracyDrop }}
{{- $arguments = concat $arguments (list "--max-accuracy-drop" (toString .)) }}
{{- end }}
{{- with $values.promotion.maxKeptIncrease }}
{{- $arguments = concat $arguments (list "--max-kept-increase" (toString .)) }}
{{- end }}
{{- end }}
{{- if $values.signingKey.existingSecret }}
{{- $arguments = concat $arguments (list "--sign-with" (printf "/etc/taugate/signing/%s" $values.signingKey.key)) }}
{{- end }}
{{- $arguments | toJson }}
{{- end }}

{{/* The options of a rule that is a sentence, as a JSON array; empty if there are none for it. */}}
{{- define "taugate.ruleArguments" -}}
{{- $rule := regexReplaceAll "\\s+" (lower . | trim) " " }}
{{- $accuracy := "accuracy not lower( by more than [0-9][0-9.e-]*)?" }}
{{- $kept := "kept share not higher( by more than [0-9][0-9.e-]*)?" }}
{{- if regexMatch (printf "^(%s|%s|%s and %s)$" $accuracy $kept $accuracy $kept) $rule }}
{{- $arguments := list }}
{{- range $clause := splitList " and " $rule }}
{{- $option := ternary "--max-accuracy-drop" "--max-kept-increase" (hasPrefix "accuracy" $clause) }}
{{- $arguments = concat $arguments (list $option (regexFind "[0-9][0-9.e-]*$" $clause | default "auto")) }}
{{- end }}
{{- $arguments | toJson }}
{{- end }}
{{- end }}

{{/* (list context name arguments) */}}
{{- define "taugate.calibrationContainer" -}}
{{- $context := index . 0 }}
{{- $values := $context.Values.recalibration -}}
- name: {{ index . 1 }}
  image: {{ include "taugate.image" (list $context $values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
    {{- toYaml (index . 2) | nindent 4 }}
  {{- with include "taugate.envFrom" (list $context $values.objectStorage.existingSecret) }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  env:
    {{- include "taugate.calibrationEnv" . | nindent 4 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- include "taugate.containerSecurity" $context | nindent 4 }}
  volumeMounts:
    {{- include "taugate.calibrationMounts" . | nindent 4 }}
{{- end }}
