mkdir -p /srv && echo secret >/srv/word
httpd -p 8080 -h /srv
exec "$@"
