{{/* Labels that select the pods of a part: include "gpuscale.selectorLabels" (list . "node-agent") */}}
{{- define "gpuscale.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: gpuscale
app.kubernetes.io/instance: {{ $root.Values.metadata.name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* Labels of every object of a part. */}}
{{- define "gpuscale.labels" -}}
{{- $root := first . -}}
{{ include "gpuscale.selectorLabels" . }}
app.kubernetes.io/part-of: gpuscale
gpuscale.dev/install: {{ $root.Values.metadata.name | quote }}
{{- end }}

{{/* Metadata of a namespaced object: include "gpuscale.metadata" (list . "node-agent"), or with a name at the end. */}}
{{- define "gpuscale.metadata" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $own := printf "%s-%s" $root.Values.metadata.name $part -}}
name: {{ len . | eq 3 | ternary (last .) $own }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "gpuscale.labels" (list $root $part) | nindent 2 }}
{{- end }}

{{/* Metadata of an object without a namespace: include "gpuscale.clusterMetadata" (list . "metrics-api" $name) */}}
{{- define "gpuscale.clusterMetadata" -}}
name: {{ last . }}
labels:
  {{- include "gpuscale.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- end }}

{{/* The image of the node agent and of the metrics API. */}}
{{- define "gpuscale.image" -}}
{{- with .Values.spec.image -}}
{{ .repository }}:{{ .tag }}
{{- end }}
{{- end }}

{{- define "gpuscale.imagePullSecrets" -}}
{{- with .Values.spec.image.pullSecret }}
imagePullSecrets:
- name: {{ . }}
{{- end }}
{{- end }}

{{/* A container's security context without any right that a process can do without; takes the user's id. */}}
{{- define "gpuscale.restrained" -}}
runAsUser: {{ . }}
runAsGroup: {{ . }}
runAsNonRoot: {{ ne . 0 }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What is known about the values' provider, as YAML. */}}
{{- define "gpuscale.provider" -}}
{{- $all := .Files.Get "files/providers.yaml" | fromYaml -}}
{{ index $all .Values.spec.provider | toYaml }}
{{- end }}

{{/* An affinity for nodes with GPUs: one term for each label that says so. */}}
{{- define "gpuscale.gpuNodeAffinity" -}}
{{- $provider := include "gpuscale.provider" . | fromYaml -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    {{- range $provider.nodeLabels }}
    - matchExpressions:
      - key: {{ .key }}
        {{- if .values }}
        operator: In
        values: {{ toJson .values }}
        {{- else }}
        operator: Exists
        {{- end }}
    {{- end }}
{{- end }}

{{/* Conditions: "true", or nothing. */}}
{{- define "gpuscale.hasApiPods" -}}
{{- with .Values.spec.metricsApi }}{{ if and .enabled (not .externalName) }}true{{ end }}{{ end }}
{{- end }}

{{- define "gpuscale.hasStreams" -}}
{{- with .Values.spec.metricsApi }}{{ if and .enabled (eq .source "streams") }}true{{ end }}{{ end }}
{{- end }}

{{- define "gpuscale.sharesAgents" -}}
{{- if and (include "gpuscale.hasStreams" .) .Values.spec.metricsApi.shareAgents }}true{{ end }}
{{- end }}

{{/* With streams, only alerts and dashboards want a Prometheus. */}}
{{- define "gpuscale.hasOwnPrometheus" -}}
{{- $wanted := or (not (include "gpuscale.hasStreams" .)) .Values.spec.alerts.enabled .Values.spec.dashboards.enabled -}}
{{- if and (eq .Values.spec.prometheus.kind "own") $wanted }}true{{ end }}
{{- end }}

{{/* The address of Prometheus as pods see it. */}}
{{- define "gpuscale.prometheusUrl" -}}
{{- if eq .Values.spec.prometheus.kind "own" -}}
http://{{ .Values.metadata.name }}-prometheus.{{ .Release.Namespace }}.svc:9090
{{- else -}}
{{ .Values.spec.prometheus.url }}
{{- end }}
{{- end }}

{{/* The port that an address leads to. */}}
{{- define "gpuscale.urlPort" -}}
{{- $default := ternary 443 80 (hasPrefix "https:" .) -}}
{{ regexFind "[0-9]+$" (urlParse .).host | default $default }}
{{- end }}

{{/* What Prometheus calls the labels of an agent's series that say whose a GPU is: namespace or exported_namespace. */}}
{{- define "gpuscale.labelPrefix" -}}
{{- if not .Values.spec.prometheus.honorLabels }}exported_{{ end }}
{{- end }}
