/** Builds one module, and two pages: index.html, which loads it, and view.html, which contains it. */

import { svelte } from '@sveltejs/vite-plugin-svelte';
import { readFileSync } from 'node:fs';
import { type Plugin, defineConfig } from 'vite';

const PAGE = new URL('index.html', import.meta.url);
const ICON = new URL('icon.svg', import.meta.url);
const MODULE = 'widget.js';

/** Write index.html, which loads the module, and view.html, which contains it and loads nothing. */
function pages(): Plugin {
  return {
    name: 'pages',
    generateBundle(_, bundle) {
      const chunk = bundle[MODULE];
      if (chunk?.type !== 'chunk') throw new Error(`${MODULE} must be one chunk`);
      const [page, icon] = [readFileSync(PAGE, 'utf8'), readFileSync(ICON, 'utf8')];
      const code = chunk.code.replace(/<\/script/g, '<\\/script').replace(/<!--/g, '<\\!--');
      const view = page
        .replace('href="icon.svg"', () => `href="data:image/svg+xml,${encodeURIComponent(icon)}"`)
        .replace(`<script type="module" src="${MODULE}"></script>`, () => `<script type="module">${code}</script>`);
      if (view.includes('src="')) throw new Error('view.html must not load anything');
      this.emitFile({ type: 'asset', fileName: 'index.html', source: page.replace(/ *<!--regard-view-->\n/, '') });
      this.emitFile({ type: 'asset', fileName: 'view.html', source: view });
      this.emitFile({ type: 'asset', fileName: 'icon.svg', source: icon });
    },
  };
}

export default defineConfig({
  plugins: [svelte({ emitCss: false, compilerOptions: { css: 'injected' } }), pages()],
  build: {
    target: 'es2022',
    outDir: '../src/regard/serve/page',
    emptyOutDir: true,
    modulePreload: false,
    license: { fileName: 'licenses.md' }, // of the packages that the page contains
    rollupOptions: {
      input: 'src/main.ts',
      preserveEntrySignatures: 'strict',
      output: { entryFileNames: MODULE, inlineDynamicImports: true },
    },
  },
});
