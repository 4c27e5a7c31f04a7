{{/*
A scale with its defaults, which Helm does not fill in inside a list, and its metrics as `entries`, signals
with what is known of them as `source`: include "gpuscale.scale" (list . $scale)
*/}}
{{- define "gpuscale.scale" -}}
{{- $defaults := (first .).Files.Get "files/scale-defaults.yaml" | fromYaml -}}
{{- $scale := mergeOverwrite $defaults (deepCopy (last .)) -}}
{{- $signals := dict -}}
{{- range (first .).Files.Get "files/signals.yaml" | fromYamlArray -}}
{{- $_ := set $signals .name . -}}
{{- end -}}
{{- $short := empty $scale.query | ternary (pick $scale "signal" "target" "metric" "of") (pick $scale "query" "target") -}}
{{- $entries := list -}}
{{- range $scale.metrics | default (list $short) -}}
{{- $entry := deepCopy . -}}
{{- if hasKey $entry "combined" -}}
{{- $parts := list -}}
{{- range $entry.parts -}}
{{- $parts = append $parts (dict "source" (get $signals .signal) "threshold" .threshold) -}}
{{- end -}}
{{- $combined := dict "parts" $parts "target" ($entry.target | default 1) "source" (dict "metric" $entry.combined) -}}
{{- $entry = merge $combined (omit $entry "parts") -}}
{{- else if not (or (hasKey $entry "type") (hasKey $entry "query")) -}}
{{- $source := get $signals ($entry.signal | default "gpu-utilization") | deepCopy -}}
{{- with $source.query -}}
{{- $of := $entry.of | replace `\` `\\` | replace `"` `\"` -}}
{{- $_ := set $source "query" (. | replace "$namespace" $scale.workload.namespace | replace "$name" $of) -}}
{{- end -}}
{{- $_ := set $entry "source" $source -}}
{{- end -}}
{{- $entries = append $entries $entry -}}
{{- end -}}
{{- $_ := set $scale "hasWindow" (hasKey (last .) "scaleDownStabilizationSeconds") -}}
{{- toYaml (set $scale "entries" $entries) -}}
{{- end }}

{{/* The trigger of each signal and query of a scale, as keys and texts; `entry` is the index of its metric. */}}
{{- define "gpuscale.triggerKeys" -}}
{{- $scale := . -}}
{{- $found := list -}}
{{- $queries := 0 -}}
{{- $wanted := 0 -}}
{{- range $index, $entry := .entries -}}
{{- $isQuery := hasKey $entry "query" -}}
{{- $isTotal := eq ($entry.targetType | default "AverageValue") "AverageValue" -}}
{{- if and (not (hasKey $entry "type")) $isTotal -}}
{{- $keys := dict "entry" $index "target" (toString $entry.target) -}}
{{- $_ := set $keys "workload" (printf "%s/%s" (lower $scale.workload.kind) $scale.workload.name) -}}
{{- if $entry.policy -}}
{{- $wanted = add $wanted 1 -}}
{{- $name := printf "%s-wanted-replicas%s" $scale.workload.name (eq $wanted 1 | ternary "" (printf "-%d" $wanted)) -}}
{{- $keys = merge (dict "metricName" $name "podLoad" $keys.target "query" $entry.query) (omit $keys "target") -}}
{{- $keys = merge $keys (include "gpuscale.policyKeys" $entry.policy | fromYaml) -}}
{{- $_ := set $keys "minReplicas" ($scale.minReplicas | int | toString) -}}
{{- $_ := set $keys "maxReplicas" ($scale.maxReplicas | int | toString) -}}
{{- else if $isQuery -}}
{{- $queries = add $queries 1 -}}
{{- $_ := set $keys "query" $entry.query -}}
{{- $_ := set $keys "metricName" (printf "%s-load%s" $scale.workload.name (eq $queries 1 | ternary "" (printf "-%d" $queries))) -}}
{{- with $entry.credit -}}
{{- $drain := eq (.drain | default "2m") "2m" | ternary "" .drain -}}
{{- range $key, $text := dict "waiting" .waiting "throughput" .throughput "startTime" .startTime "drain" $drain -}}
{{- if $text -}}
{{- $_ := set $keys $key $text -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq (int $scale.minReplicas) 0 -}}
{{- /* A load counts only while there are pods. */ -}}
{{- $_ := set $keys "wakeQuery" $entry.query -}}
{{- end -}}
{{- else -}}
{{- $signal := $entry.combined | default $entry.signal | default "gpu-utilization" -}}
{{- if hasKey $entry "combined" -}}
{{- $_ := set $keys "metric" $signal -}}
{{- else -}}
{{- with $entry.source.query -}}
{{- $_ := set $keys "query" . -}}
{{- if and (eq (int $scale.minReplicas) 0) $entry.source.isThereAtZero -}}
{{- $_ := set $keys "wakeQuery" . -}}
{{- end -}}
{{- else -}}
{{- $_ := set $keys "signal" $signal -}}
{{- end -}}
{{- end -}}
{{- $_ := set $keys "metricName" (printf "%s-%s" $scale.workload.name $signal) -}}
{{- end -}}
{{- if empty $found -}}
{{- range $key, $text := include "gpuscale.wakeKeys" $scale.wake | fromYaml -}}
{{- $_ := set $keys $key $text -}}
{{- end -}}
{{- end -}}
{{- $found = append $found $keys -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* What a trigger says of a policy, as keys and texts. */}}
{{- define "gpuscale.policyKeys" -}}
{{- $settings := list -}}
{{- range $name, $value := .settings -}}
{{- $settings = append $settings (printf "%s: %.12g" $name (float64 $value)) -}}
{{- end -}}
{{- $found := dict "policy" (printf "{name: %s, settings: {%s}}" .name (join ", " $settings)) -}}
{{- range $key := list "startTime" "lag" "learn" -}}
{{- with get $ $key -}}
{{- $_ := set $found $key . -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* What a trigger says of a wake, as keys and texts. */}}
{{- define "gpuscale.wakeKeys" -}}
{{- $found := dict -}}
{{- with . -}}
{{- $timezone := empty .start | ternary "" (.timezone | default "UTC") -}}
{{- $replicas := gt (int (.replicas | default 1)) 1 | ternary (toString .replicas) "" -}}
{{- $hold := eq (.hold | default "10m") "10m" | ternary "" .hold -}}
{{- $given := dict "wakeName" .name "wakeQuery" .query "wakeStart" .start "wakeEnd" .end "timezone" $timezone -}}
{{- $given = merge $given (dict "wakeReplicas" $replicas "wakeDeadline" .deadline "hold" $hold) -}}
{{- $_ := set $given "wake" (join "," (.sources | default list)) -}}
{{- $_ := set $given "wakeThreshold" (empty .threshold | ternary "" (toString .threshold)) -}}
{{- $_ := set $given "fallbackReplicas" (empty .fallbackReplicas | ternary "" (toString .fallbackReplicas)) -}}
{{- range $key, $text := $given -}}
{{- if $text -}}
{{- $_ := set $found $key $text -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* The trigger of each metric of some Jobs, as keys and texts; the first one wakes too. */}}
{{- define "gpuscale.jobTriggerKeys" -}}
{{- $job := . -}}
{{- $wake := include "gpuscale.wakeKeys" .wake | fromYaml -}}
{{- $found := list -}}
{{- range $index, $entry := .metrics -}}
{{- $ending := eq $index 0 | ternary "" (printf "-%d" (add 1 $index)) -}}
{{- $keys := dict "query" $entry.query "target" (toString ($entry.target | default 1)) -}}
{{- $_ := set $keys "metricName" (printf "%s-load%s" $job.name $ending) -}}
{{- $found = append $found (merge $keys $wake) -}}
{{- $wake = dict -}}
{{- else -}}
{{- $found = append $found (set $wake "metricName" (printf "%s-wake" $job.name)) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Whether the metrics API serves the signals and queries of a scale by triggers. */}}
{{- define "gpuscale.hasServedTriggers" -}}
{{- if eq .autoscaler "hpa" -}}
{{- if .wake }}true{{ else }}{{ range .entries }}{{ if or (hasKey . "query") (eq (dig "source" "kind" "" .) "external") }}true{{ end }}{{ end }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The entries of the file of triggers that the metrics API serves; nothing where it serves none. */}}
{{- define "gpuscale.servedTriggers" -}}
{{- $found := list -}}
{{- if .Values.spec.metricsApi.enabled -}}
{{- range .Values.spec.scale -}}
{{- $scale := include "gpuscale.scale" (list $ .) | fromYaml -}}
{{- if include "gpuscale.hasServedTriggers" $scale -}}
{{- range include "gpuscale.triggerKeys" $scale | fromYamlArray -}}
{{- $found = append $found (set (omit . "entry") "namespace" $scale.workload.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* The namespaces in which KEDA asks the scaler for something; nothing where it asks for nothing. */}}
{{- define "gpuscale.scalerNamespaces" -}}
{{- $found := list -}}
{{- if eq .Values.spec.keda.trigger "scaler" -}}
{{- range .Values.spec.scale -}}
{{- $scale := include "gpuscale.scale" (list $ .) | fromYaml -}}
{{- if and (eq $scale.autoscaler "keda") (include "gpuscale.triggerKeys" $scale | fromYamlArray) -}}
{{- $found = append $found $scale.workload.namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.spec.jobs -}}
{{- $found = append $found (.namespace | default "default") -}}
{{- end -}}
{{- with $found }}{{ uniq . | toYaml }}{{ end -}}
{{- end }}

{{/* The ConfigMap in which replicas of a part keep what they decided last, and the right to: (list . "scaler" $settings) */}}
{{- define "gpuscale.held" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $name := printf "%s-%s-held" $root.Values.metadata.name $part -}}
---
# Without data: what the pods write there stays when this is applied again.
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "gpuscale.metadata" (list $root $part $name) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "gpuscale.metadata" (list $root $part $name) | nindent 2 }}
rules:
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ $name }}]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "gpuscale.metadata" (list $root $part $name) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "gpuscale.serviceAccountName" (list $root $part (last .)) }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* The ports of workloads that are scraped for what their model servers serve, each once. */}}
{{- define "gpuscale.servedPorts" -}}
{{- $found := list -}}
{{- if not (include "gpuscale.hasStreams" .) -}}
{{- range .Values.spec.scale -}}
{{- $scale := include "gpuscale.scale" (list $ .) | fromYaml -}}
{{- $suffix := eq $scale.workload.kind "Deployment" | ternary "-[a-z0-9]{1,10}-[a-z0-9]{5}" "-[0-9]+" -}}
{{- range $scale.entries -}}
{{- range include "gpuscale.sources" . | fromYamlArray -}}
{{- $source := . -}}
{{- with $source.port -}}
{{- $pods := printf "%s%s" ($scale.workload.name | replace "." "[.]") $suffix -}}
{{- $port := int ($scale.metricsPort | default .) -}}
{{- $found = append $found (dict "namespace" $scale.workload.namespace "pods" $pods "port" $port "path" $source.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ uniq . | toYaml }}{{ end -}}
{{- end }}

{{/* What is known of the signals of an entry: of its own, or of its parts. */}}
{{- define "gpuscale.sources" -}}
{{- $found := list -}}
{{- range .parts | default (list .) -}}
{{- with .source -}}
{{- $found = append $found . -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* The namespaces of those workloads. */}}
{{- define "gpuscale.servedNamespaces" -}}
{{- $found := list -}}
{{- range include "gpuscale.servedPorts" . | fromYamlArray -}}
{{- $found = append $found .namespace -}}
{{- end -}}
{{- with $found }}{{ uniq . | toYaml }}{{ end -}}
{{- end }}
