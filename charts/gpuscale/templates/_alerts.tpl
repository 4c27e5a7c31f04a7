{{/* A file of alert rules, filled in: include "gpuscale.alertFile" (list . "gpus") */}}
{{- define "gpuscale.alertFile" -}}
{{- $values := (first .).Values -}}
{{- $queues := (first .).Files.Get "files/queues.yaml" | fromYaml -}}
{{ printf "files/alerts/%s.yaml" (last .) | (first .).Files.Get
  | replace "AGENT_JOB" (printf "%s-node-agent" $values.metadata.name)
  | replace "API_JOB" (printf "%s-metrics-api" $values.metadata.name)
  | replace "SCALER_JOB" (printf "%s-scaler" $values.metadata.name)
  | replace "IDLE_TIME" $values.spec.alerts.idle
  | replace "NODE_START_TIME" $values.spec.alerts.nodeStart
  | replace "DOCS_URL" $values.spec.alerts.docsUrl
  | replace "QUEUES_OF_PODS" $queues.ofPods
  | replace "QUEUE_METRICS" $queues.metrics }}
{{- end }}

{{/* The groups of alert rules. */}}
{{- define "gpuscale.alertGroups" -}}
{{- $exported := dict -}}
{{- if not .Values.spec.prometheus.honorLabels }}
  {{- range (include "gpuscale.alertFile" (list . "exported-labels") | fromYaml).groups }}
    {{- range .rules }}{{ $_ := set $exported .alert . }}{{ end }}
  {{- end }}
{{- end -}}
groups:
{{- range $file := list "gpus" "scaling" }}
{{- range (include "gpuscale.alertFile" (list $ $file) | fromYaml).groups }}
- name: {{ .name }}
  rules:
  {{- range .rules }}
  {{- $rule := get $exported .alert | default . }}
  {{- $isKept := true }}
  {{- range splitList ", " $rule.annotations.needs }}
    {{- $has := false }}
    {{- range splitList " or " . }}
      {{- if eq . "metrics API" }}{{ if include "gpuscale.hasApiPods" $ }}{{ $has = true }}{{ end }}
      {{- else if eq . "scaler" }}{{ if include "gpuscale.scalerNamespaces" $ }}{{ $has = true }}{{ end }}
      {{- else }}{{ $has = true }}{{ end }}
    {{- end }}
    {{- if not $has }}{{ $isKept = false }}{{ end }}
  {{- end }}
  {{- if $isKept }}
  {{- /* Its two paragraphs become one. What it needs is for the documentation. */}}
  {{- $description := $rule.annotations.description | replace "\n" " " }}
  {{- $annotations := omit $rule.annotations "needs" | merge (dict "description" $description) }}
  - {{ set $rule "annotations" $annotations | toYaml | nindent 4 | trim }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
