echo waiting
exec sleep 20
