"""Templates that have each construct of chat templates, for make_chat_templates.py: those that are rendered, and those
that are refused."""

LINES = [
    # White space
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a  {%- if true -%}  b  {%- endif %}  c", "  {%+ if true +%}\n x{% endif %}\n",
    "{# c #}\nx{#- d -#}\n y  {# e #}\n", " {{- s -}} \n z", "{{ s }}\n", "x\r\ny\rz\r\n", "{% raw %}{{ a }}{%- endraw %} b", "  {% raw -%}\n {%a%}\n  {% endraw %}\nq",
    "a{% set x = 1 %}\n\nb", "{{ '{{ x }}' }}{{ '%}' }}", "{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}.a.b }}", "{%if n%}1{%endif%}", "a{{ '' }}\n  {% if 0 %}{% endif %}b",
    # Literals
    "{{ 'a\\n\\t\\'\\\"\\\\\\x41\\u00e9\\U0001F44D\\101\\q' }}", "{{ \"it's\" 'two' }}", "{{ 1_000 }} {{ 1.5e3 }} {{ 2e-7 }} {{ 1e16 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ 5.0 }}",
    "{{ [1, 'a', \"it's\", none, true, 1.5, (1,), (), {}, []] }}", "{{ {'a': 1, 2: 'b', none: [true]} }}", "{{ ['q\\n\\t\\\\\\x07\\u00e9'] }}", "{{ none }}{{ None }}{{ True }}{{ false }}",
    "{{ (1, 2) }}{{ 1, 2 }}",
    # Operators
    "{{ n + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -n ** 2 }} {{ 5.5 // 2 }} {{ -5.5 % 2 }}",
    "{{ 'a' + 'b' }}{{ 'ab' * 2 }}{{ [1] + [2] }}{{ [0] * 2 }}{{ (1,) + (2,) }}{{ 'a' ~ 1 ~ none ~ nope }}{{ true + 1 }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 1 != 2 }}{{ n >= 5 }}{{ none == nope }}{{ {'a': 1} == {'a': 1.0} }}",
    "{{ 'ell' in s }}{{ 4 not in l }}{{ 'a' in d }}{{ 'x' in nope }}{{ not 1 in l }}{{ 1 in [true] }}", "{{ no or 'x' }}{{ n and s }}{{ not no }}{{ no and nope.x }}",
    "{{ 'a' if n > 3 else 'b' }}{{ 'a' if no }}{{ 1 if no else 2 if no else 3 }}", "{{ '%s %d %5.2f|%-4s|%03d %x %%' % ('a', 3, 2.5, 'b', 7, 255) }}{{ '%s' % n }}", "{{ -n|abs }}{{ (-n)|abs }}{{ +n }}",
    # Subscripts, attributes, slices
    "{{ s[0] }}{{ s[-1] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[::2] }}{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[:-1] }}{{ l[::-1] }}{{ l[5:] }}{{ l[-2:] }}", "{{ u[3:8] }}{{ u[-1] }}",
    "{{ d.a }}{{ d['a'] }}{{ d['items'] }}{{ d.zz }}{{ deep.x[0].y }}{{ deep.x.1.y }}{{ no.x }}{{ n.x }}{{ l[9] }}", "{{ messages[1:]|length }}{{ messages[-1]['role'] }}{{ messages[0].content|trim }}",
    "{{ nope is defined }}{{ d.zz is defined }}{{ nope }}",
    # Filters
    "{{ s|upper }}{{ s|lower }}{{ 'ab-cd (ef) gH'|title }}{{ 'aBC'|capitalize }}{{ '  x '|trim }}{{ 'xxax'|trim('x') }}{{ s|length }}{{ l|count }}{{ n|string + '!' }}",
    "{{ u|upper }}|{{ u|lower }}|{{ u|title }}|{{ u|capitalize }}|{{ u.title() }}|{{ u|length }}", "{{ d|tojson }}{{ messages|tojson }}{{ 'a\"<é\\u2028\\x01'|tojson }}{{ 1.0|tojson }}{{ none|tojson }}",
    "{{ messages[2]|tojson(indent=2) }}", "{{ d|tojson(indent=4, sort_keys=true) }}{{ 'é👍'|tojson(ensure_ascii=true) }}{{ [1, {}]|tojson(separators=(',', ':')) }}{{ []|tojson(indent=2) }}",
    "{{ l|join }}{{ l|join(', ') }}{{ messages|join('|', attribute='role') }}", "{{ no|default('x') }}{{ no|default('x', true) }}{{ nope|default('x') }}{{ nope|d }}{{ d.q|default(3) }}",
    "{{ s|replace('l', 'L') }}{{ s|replace('l', 'L', 1) }}{{ 'ab'|replace('', '-') }}{{ 12|replace(1, 'x') }}", "{{ l|first }}{{ l|last }}{{ s|first }}{{ []|first }}{{ d|first }}",
    "{{ '12'|int + 1 }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ ' 3.9 '|int }}{{ 2.9|int }}{{ '1_0'|int }}{{ no|int }}{{ '1.5'|float }}{{ 'x'|float(2.0) }}", "{{ s|list }}{{ d|list }}{{ range(3)|list }}",
    "{{ messages|map(attribute='role')|list }}{{ w|map('upper')|join }}{{ messages|map(attribute='q', default='-')|join }}{{ deep.x|map(attribute='y')|list }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|list }}{{ messages|selectattr('tool_calls')|list|length }}",
    "{{ l|select('odd')|list }}{{ l|reject('gt', 1)|list }}{{ [0, 1, '']|select|list }}{{ no|map('upper')|list }}", "{{ d|items|list }}{{ d.items()|list }}{{ d|dictsort }}{{ d|dictsort(by='value', reverse=true)|length if false }}",
    "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent('>', blank=true) }}|{{ ''|indent }}", "{{ l|sort }}{{ w|sort }}{{ w|sort(case_sensitive=true) }}{{ l|sort(reverse=true) }}{{ w|unique|list }}",
    "{{ l|max }}{{ l|min }}{{ l|sum }}{{ [1.5, 2]|sum }}{{ l|reverse|list }}{{ s|reverse }}{{ w|min }}", "{{ '%s-%s'|format(1, 'a') }}{{ (-2.5)|abs }}{{ s|safe }}", "{% filter upper|trim %} x {{ s }} {% endfilter %}",
    # Tests
    "{{ n is defined }}{{ no is none }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ s is iterable }}{{ n is number }}{{ f is float }}{{ n is integer }}{{ yes is boolean }}{{ yes is integer }}",
    "{{ yes is true }}{{ 1 is true }}{{ no is false }}{{ n is odd }}{{ n is divisibleby 5 }}{{ n is equalto 5 }}{{ 'a' is in ['a'] }}{{ n is not none }}{{ n is not string and yes }}{{ s is lower }}{{ 'X' is upper }}",
    "{{ n is eq 5 }}{{ n is ne(5) }}{{ n is gt 4 }}{{ n is lessthan 4 }}{{ n is sameas n }}{{ raise_exception is callable }}{{ nope is undefined }}{{ nope is iterable }}",
    # Methods
    "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xa'.lstrip('x') }}|{{ 'ax '.rstrip() }}|{{ odd.strip() }}", "{{ s.split() }}{{ s.split('o') }}{{ s.split('o', 1) }}{{ s.rsplit('o', 1) }}{{ ' a  b '.split() }}{{ 'a  b '.split(none, 1) }}",
    "{{ s.startswith('He') }}{{ s.endswith(('x', 'ld')) }}{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('q') }}{{ s.count('l') }}{{ s.index('W') }}", "{{ s.upper() }}{{ s.lower() }}{{ 'ab cd'.title() }}{{ 'aB'.capitalize() }}{{ s.replace('l', '') }}",
    "{{ ', '.join(w) }}{{ lines.splitlines() }}{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }}{{ 'a'.center(4) }}{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}",
    "{{ d.keys() }}{{ d.values() }}{{ d.items() }}{{ d.get('a') }}{{ d.get('q') }}{{ d.get('q', 1) }}{{ l.index(2) }}{{ l.count(1) }}{{ d.keys()|list }}", "{{ '{} {a} {{}}'.format(1, a=2) }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'A'.isupper() }}",
    # Statements
    "{% set x = 1 %}{% set a, b = 1, (2, 3) %}{{ x }}{{ a }}{{ b }}{% set x %}  t{{ n }}  {% endset %}[{{ x }}]{% set y | trim | upper %} q {% endset %}[{{ y }}]",
    "{% if no %}1{% elif n == 5 %}2{% else %}3{% endif %}{% if no %}{% else %}4{% endif %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }}{{ loop.depth }}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for c in 'añ' %}{{ c }}.{% endfor %}",
    "{% for i in range(9) if i is odd %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(x=0, found=false) %}{% for i in l if not ns.found %}{% set ns.x = ns.x + i %}{% set ns.found = i == 1 %}{{ i }}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns['x'] }}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i in nope %}x{% endfor %}",
    "{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}{{ m(b=1, a=0)|upper }}{{ m(*[7, 8], **{'c': 9}) }}",
    "{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, x=3) }}{% macro r(k) %}{{ k }}{% if k %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(3) }}", "{% macro w(a) %}<{{ caller(a) }}>{% endmacro %}{% call(z) w(5) %}{{ z }}{{ s }}{% endcall %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% generation %}{{ s }}{% set q = 1 %}{% endgeneration %}{{ q }}", "{{ strftime_now('%d %b %Y %B %A %a %H:%M:%S %I %p %j %y %m %-d %e %u %w %F %D %T %R %%') }}",
    "{{ range(5)|list }}{{ range(1, 10, 3)|list }}{{ range(3, 0, -1)|list }}{{ dict(a=1).a }}{{ dict({'b': 2}, c=3) }}{% for i in range(2) %}{{ i }}{% endfor %}", "{% set q = l|map('string') %}{{ q|join }}{{ q|join }}",
    "{% for i in l %}{% break %}{% else %}e{% endfor %}", "{% for i in l if i > 1 %}{{ loop.last }}{% endfor %}", "{% set x = namespace() %}{% set x.y %}b{% endset %}{{ x.y }}",
    # Refused
    "{{ raise_exception('Roles must ' ~ 'alternate') }}", "{{ nope.x }}", "{{ d.q.r }}", "{{ nope() }}", "{{ nope + 1 }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ n.x.y }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ s.split('') }}", "{{ 1 in 2 }}",
    "{{ 1 < 'a' }}", "{{ s.index('q') }}", "{{ no|length }}", "{% for i in 5 %}{% endfor %}", "{{ nope|tojson }}", "{{ s.__class__ }}{{ s.__class__.x }}", "{{ range(1000000) }}", "{% set n.x = 1 %}", "{{ l|join(1, 2, 3) }}", "{{ m(1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% set a, b = [1] %}", "{{ s|nofilter }}", "{{ s is notest }}", "{{ l[::0] }}", "{{ no[1:] }}", "{{ '%d' % 'a' }}", "{{ '%s' % (1, 2) }}",
    "{{ 'abc }}", "{% if x %}", "{% endif %}", "{{ (1 }}", "{{ 1 }", "{# c", "{% raw %}", "{{ a b }}", "{{ }}", "{% for in l %}{% endfor %}", "{% nothing %}", "{{ [1, 2 }}", "{{ 1 + }}", "{% set 1 = 2 %}", "{% break %}", "{{ f(a=1, 2) }}", "{{ n is }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{{ a is b is c }}", "{{ 'a' | }}", "{{ d. }}", "{% else %}", "{{ $ }}", "{{ 1 | upper | }}", "{{ l[ }}", "{% if %}{% endif %}",
]
