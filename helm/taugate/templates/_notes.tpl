{{/* Commands in the notes; the chart accepts all of them. */}}

{{/* The new chart's defaults with the user's values; --reuse-values would keep the old chart's defaults. */}}
{{- define "taugate.upgrade" -}}
helm upgrade {{ .Release.Name }} CHART --namespace {{ .Release.Namespace }} --reset-then-reuse-values
{{- end }}

{{/* A calibration with its missing values. It resets the arguments of an earlier command, which would be run instead. */}}
{{- define "taugate.calibrateNow" -}}
{{- $values := .Values.recalibration }}
{{- $set := list "recalibration.job.enabled=true" }}
{{- if not $values.promotion.enabled }}
{{- $set = append $set "recalibration.promotion.enabled=true" }}
{{- end }}
{{- if eq (include "taugate.setting" (list . "reload_seconds") | float64) 0.0 }}
{{- $set = append $set "settings.reload_seconds=60" }}
{{- end }}
{{- if and (include "taugate.trusts" .) (not $values.signingKey) }}
{{- $set = append $set "recalibration.signingKey=SECRET" }}
{{- end -}}
{{ include "taugate.upgrade" . }} \
    --set {{ join "," $set }} \
    --set-json 'recalibration.job.arguments=[]'
{{- end }}

{{- define "taugate.signs" -}}
{{- if include "taugate.trusts" . }} --sign-with PEM{{ end }}
{{- end }}
