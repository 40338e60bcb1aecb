-- Which of the commands that the scripts use this user may not run. KEYS[1] <namespace>:store
local key, denied = KEYS[1], {}
local commands = {
  {'INFO'}, {'EXISTS', key}, {'GET', key}, {'SET', key, 'x'}, {'DEL', key}, {'HGET', key, 'x'}, {'HSET', key, 'x', 'x'},
  {'HMGET', key, 'x'}, {'ZADD', key, '1', 'x'}, {'ZREM', key, 'x'}, {'ZCARD', key}, {'ZSCORE', key, 'x'},
  {'ZRANGE', key, '0', '0'}, {'ZRANGEBYSCORE', key, '0', '0'}, {'ZREMRANGEBYRANK', key, '0', '0'}, {'SADD', key, 'x'},
  {'SREM', key, 'x'}, {'SMEMBERS', key}, {'PTTL', key}, {'PEXPIRE', key, '1'}, {'WAIT', '1', '1'},
  {'PUBLISH', string.sub(key, 1, -6) .. 'events', 'x'}, {'SUBSCRIBE', string.sub(key, 1, -6) .. 'events'}, {'PING'},
}
for _, command in ipairs(commands) do
  if not redis.acl_check_cmd(unpack(command)) then denied[#denied + 1] = command[1] end
end
return denied
