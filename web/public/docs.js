/**
 * The API reference: reads the server's OpenAPI document and draws a form for each endpoint and a table for each
 * schema. A file of its own, because the server's content security policy allows no inline scripts.
 *
 * @typedef {{ $ref?: string, type?: string, const?: unknown, default?: unknown, description?: string,
 *   anyOf?: Schema[], items?: Schema, examples?: unknown[], required?: string[], properties?: Record<string, Schema>,
 *   minimum?: number, exclusiveMinimum?: number, maximum?: number, exclusiveMaximum?: number }} Schema
 * @typedef {Record<string, { schema?: Schema }>} Content
 * @typedef {{ name: string, schema: Schema, description?: string }} Parameter
 * @typedef {{ description?: string, parameters?: Parameter[], requestBody?: { content: Content },
 *   responses: Record<string, { description: string, content?: Content }> }} Operation
 * @typedef {{ info: { title: string, version: string, description: string },
 *   paths: Record<string, Record<string, Operation>>, components: { schemas: Record<string, Schema> } }} Api
 */

const MAX_CHARACTERS = 20000; // of a response that is shown
/** @type {[keyof Schema, string][]} */
const BOUNDS = [
  ['minimum', '≥'],
  ['exclusiveMinimum', '>'],
  ['maximum', '≤'],
  ['exclusiveMaximum', '<'],
];

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {(Node | string)[]} children
 */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** @param {(Node | string)[][]} cells */
const row = (...cells) => element('tr', {}, ...cells.map((cell) => element('td', {}, ...cell)));

/** @param {string} ref */
const schemaName = (ref) => ref.slice(ref.lastIndexOf('/') + 1);

/** @param {Schema} schema @returns {(Node | string)[]} */
function typeOf(schema) {
  if (schema.$ref) {
    const name = schemaName(schema.$ref);
    return [element('a', { href: `#${name}` }, name)];
  }
  if (schema.anyOf) return schema.anyOf.flatMap((each, i) => (i ? [' or ', ...typeOf(each)] : typeOf(each)));
  if (schema.type === 'array') return ['list of ', ...typeOf(schema.items ?? {})];
  const bounds = BOUNDS.filter(([key]) => key in schema).map(([key, sign]) => `${sign} ${schema[key]}`);
  return [[String(schema.const ?? schema.type ?? ''), ...bounds].join(' ')];
}

/** The required fields of a body with their first examples. @param {Schema} body @param {Api} api */
function example(body, api) {
  const schema = body.$ref ? api.components.schemas[schemaName(body.$ref)] : body;
  const fields = (schema.required ?? []).map((name) => {
    const field = schema.properties?.[name] ?? {};
    const examples = [field, ...(field.anyOf ?? [])].flatMap((each) => each.examples ?? []);
    return [name, examples[0] ?? ''];
  });
  return JSON.stringify(Object.fromEntries(fields), null, 1);
}

/** @param {Parameter} parameter */
function parameterRow({ name, schema, description }) {
  const input = element('input', { name, value: String(schema.default ?? '') });
  const label = element('label', {}, element('code', {}, name), ' ', input);
  return row([label], [...typeOf(schema), ' ', description ?? '']);
}

/** @param {HTMLFormElement} form @param {string} method @param {string} path */
async function send(form, method, path) {
  const query = new URLSearchParams();
  for (const { name, value } of form.querySelectorAll('input')) {
    if (path.includes(`{${name}}`)) path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (value !== '') query.set(name, value);
  }
  const body = form.querySelector('textarea')?.value;
  /** @type {HeadersInit} */
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
  const output = /** @type {HTMLPreElement} */ (form.querySelector('pre'));
  output.hidden = false;
  output.textContent = '…';
  try {
    const response = await fetch(query.size ? `${path}?${query}` : path, { method, headers, body });
    output.textContent = `${response.status}\n${(await response.text()).slice(0, MAX_CHARACTERS)}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

/** @param {string} method @param {string} path @param {Operation} operation @param {Api} api */
function endpoint(method, path, operation, api) {
  const form = element('form', {}, element('table', {}, ...(operation.parameters ?? []).map(parameterRow)));
  const body = operation.requestBody?.content['application/json']?.schema;
  if (body) form.append(element('textarea', { 'aria-label': 'Request body' }, example(body, api)));
  form.append(element('button', {}, 'Send'), element('pre', { hidden: '' }));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void send(form, method, path);
  });
  const responses = Object.entries(operation.responses).map(([status, { description, content = {} }]) => {
    const types = Object.entries(content).flatMap(([type, { schema }]) => [`${type} `, ...typeOf(schema ?? {}), ' ']);
    return row([status], [description], types);
  });
  const summary = element('summary', {}, element('code', {}, `${method} ${path}`), ` ${operation.description ?? ''}`);
  return element('details', {}, summary, form, element('table', {}, ...responses));
}

/** @param {string} name @param {Schema} schema */
function schemaTable(name, schema) {
  const fields = Object.entries(schema.properties ?? {}).map(([field, type]) =>
    row([element('code', {}, field)], typeOf(type), [type.description ?? '']),
  );
  const summary = element('summary', {}, element('code', {}, name), ` ${schema.description ?? ''}`);
  return element('details', { id: name }, summary, element('table', {}, ...fields));
}

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {Api} api */
function draw(api) {
  byId('about').prepend(`Version ${api.info.version}. ${api.info.description} `);
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => endpoint(method.toUpperCase(), path, operation, api)),
  );
  byId('endpoints').append(...operations);
  const names = Object.keys(api.components.schemas).sort();
  byId('schemas').append(...names.map((name) => schemaTable(name, api.components.schemas[name])));
}

/** Opens the schema that the address names, as a link to it does. */
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}

try {
  const response = await fetch('openapi.json');
  if (!response.ok) throw new Error(`/openapi.json: HTTP ${response.status}`);
  draw(await response.json());
  addEventListener('hashchange', openTarget);
  openTarget();
} catch (error) {
  byId('about').prepend(`The API description could not be loaded (${error}). `);
}

export {};
