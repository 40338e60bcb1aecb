-- Renews a lease and all that is under it.
-- KEYS[1] <namespace>:lease:<id>  KEYS[2] <namespace>:leased:<id>  KEYS[3] <namespace>:keys  ARGV[1] <id>
local ttl = redis.call('GET', KEYS[1])
if not ttl then return {'gone'} end
local prefix = string.sub(KEYS[3], 1, -5)
local whole = true
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local holder = redis.call('GET', prefix .. 'holder:' .. key)
  if holder == ARGV[1] then
    redis.call('PEXPIRE', prefix .. 'holder:' .. key, ttl)
    if redis.call('PEXPIRE', prefix .. 'key:' .. key, ttl) == 0 then whole = false end
  elseif holder then
    redis.call('SREM', KEYS[2], key)
  else
    whole = false
  end
end
-- A key that was evicted or deleted by hand comes back only if the whole lease is made anew.
if not whole then
  redis.call('DEL', KEYS[1])
  return {'gone'}
end
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl)
return {'alive'}
