{{/* The commands of the CronJobs and of the Job. */}}

{{/* The arguments of calibrate or recalibrate, as a JSON array: (list context command). */}}
{{- define "taugate.calibrate" -}}
{{- $command := index . 1 }}
{{- $values := (index . 0).Values.recalibration }}
{{- $folder := regexReplaceAll "^[^/]*" (default "" $values.data.existingClaim) "/data" | trimSuffix "/" }}
{{- $data := default $folder $values.data.url }}
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
