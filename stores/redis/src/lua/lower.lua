-- From now on no more than ARGV[1] replicas are waited for in this namespace. KEYS[1] <namespace>:store
local wait = tonumber(redis.call('HGET', KEYS[1], 'wait') or 0) or 0
if tonumber(ARGV[1]) < wait then redis.call('HSET', KEYS[1], 'wait', ARGV[1]) end
return {'ok'}
