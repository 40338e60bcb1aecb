-- Writes a registered key under a lease.
-- KEYS[1] <namespace>:lease:<id>  KEYS[2] <namespace>:leased:<id>  KEYS[3] <namespace>:keys
-- KEYS[4] <namespace>:key:<key>   KEYS[5] <namespace>:holder:<key>
-- ARGV[1] <id>  ARGV[2] <key>  ARGV[3] value
local left = redis.call('PTTL', KEYS[1])
if left <= 0 then return {'gone'} end
local leased = string.sub(KEYS[2], 1, -1 - #ARGV[1])
local former = redis.call('GET', KEYS[5])
if former and former ~= ARGV[1] then redis.call('SREM', leased .. former, ARGV[2]) end
redis.call('SET', KEYS[4], ARGV[3], 'PX', left)
redis.call('SET', KEYS[5], ARGV[1], 'PX', left)
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[2], left)
redis.call('SADD', KEYS[3], ARGV[2])
return {'alive'}
