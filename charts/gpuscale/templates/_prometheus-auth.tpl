{{/*
The metrics API's credentials for Prometheus: arguments, variables, and the sources of one volume. It is a
folder, so that what is renewed arrives without a restart; what has no flag for a file is a variable.
*/}}
{{- define "gpuscale.prometheusAuth.args" -}}
{{- if .Values.spec.prometheus.identity }}
- --prometheus-identity=azure-workload
{{- end }}
{{- with .Values.spec.prometheus.auth }}
{{- if .authorization }}
- --prometheus-token-file=/etc/gpuscale/prometheus/token
{{- end }}
{{- with .basicAuth }}
- --prometheus-username={{ kindIs "string" .username | ternary .username "$(PROMETHEUS_USERNAME)" }}
- --prometheus-password-file=/etc/gpuscale/prometheus/password
{{- end }}
{{- $headers := .headers }}
{{- range $index, $name := keys .headers | sortAlpha }}
{{- $value := get $headers $name }}
- {{ printf "--prometheus-header=%s=%s" $name (kindIs "string" $value | ternary $value (printf "$(PROMETHEUS_HEADER_%d)" $index)) | quote }}
{{- end }}
{{- if .tlsConfig.ca }}
- --prometheus-ca-file=/etc/gpuscale/prometheus/ca.crt
{{- end }}
{{- if .tlsConfig.cert }}
- --prometheus-client-tls-cert-file=/etc/gpuscale/prometheus/tls.crt
- --prometheus-client-tls-key-file=/etc/gpuscale/prometheus/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuscale.prometheusAuth.env" -}}
{{- $found := list }}
{{- with .Values.spec.prometheus.auth }}
{{- with .basicAuth }}
{{- if kindIs "map" .username }}
{{- $found = append $found (dict "name" "PROMETHEUS_USERNAME" "valueFrom" (dict "secretKeyRef" .username)) }}
{{- end }}
{{- end }}
{{- $headers := .headers }}
{{- range $index, $name := keys .headers | sortAlpha }}
{{- $value := get $headers $name }}
{{- if kindIs "map" $value }}
{{- $found = append $found (dict "name" (printf "PROMETHEUS_HEADER_%d" $index) "valueFrom" (dict "secretKeyRef" $value)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{- define "gpuscale.prometheusAuth.sources" -}}
{{- $found := list }}
{{- if not (include "gpuscale.hasStreams" .) }}
{{- with .Values.spec.prometheus.auth }}
{{- with .authorization }}
{{- $found = append $found (list "secret" .credentials "token") }}
{{- end }}
{{- with .basicAuth }}
{{- $found = append $found (list "secret" .password "password") }}
{{- end }}
{{- with .tlsConfig.ca }}
{{- $found = append $found (list (hasKey . "secret" | ternary "secret" "configMap") (.secret | default .configMap) "ca.crt") }}
{{- end }}
{{- with .tlsConfig.cert }}
{{- $found = append $found (list (hasKey . "secret" | ternary "secret" "configMap") (.secret | default .configMap) "tls.crt") }}
{{- end }}
{{- with .tlsConfig.keySecret }}
{{- $found = append $found (list "secret" . "tls.key") }}
{{- end }}
{{- end }}
{{- end }}
{{- range $found }}
{{- $from := index . 1 }}
- {{ index . 0 }}:
    name: {{ $from.name }}
    items:
    - key: {{ $from.key }}
      path: {{ index . 2 }}
{{- end }}
{{- end }}
